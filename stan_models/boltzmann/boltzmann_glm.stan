// The same density as boltzmann.stan, its sum of log cosh written as a
// generalised linear model, whose gradient Stan knows in closed form:
// sum log cosh(y) = sum(y) - B log 2 - bernoulli_logit_glm_lpmf(1 | 2 Q, 2 b, x).
data {
  int<lower=1> B;
  int<lower=1> D;
  matrix[B, D] Q;
  vector[B] b;
}
transformed data {
  array[B] int ones = ones_int_array(B);
  matrix[B, D] twice_Q = 2 * Q;
  vector[B] twice_b = 2 * b;
  row_vector[D] total = rep_row_vector(1, B) * Q;
  real constant = sum(b) - B * log2();
}
parameters {
  vector[D] x;
}
model {
  target += -0.5 * dot_self(x) + total * x + constant;
  target += -bernoulli_logit_glm_lpmf(ones | twice_Q, twice_b, x);
}
