// Gaussian mixture relaxation of a Boltzmann machine over signs s in {-1, 1}^B
// (Graham & Storkey 2017, appendix B). With Q Q' = W + diag, the density
// exp(-x'x / 2) prod_i cosh(Q_i x + b_i) integrates to
// Z = Z_B exp(tr(diag) / 2) (2 pi)^(D / 2) / 2^B.
data {
  int<lower=1> B;
  int<lower=1> D;
  matrix[B, D] Q;
  vector[B] b;
}
parameters {
  vector[D] x;
}
model {
  // log cosh(y) = |y| + log(1 + exp(-2 |y|)) - log(2)
  vector[B] size = abs(Q * x + b);
  target += -0.5 * dot_self(x);
  target += sum(size) + sum(log1p_exp(-2 * size)) - B * log2();
}
