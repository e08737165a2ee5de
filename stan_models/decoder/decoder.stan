// Latent codes x of binary images y under a fixed decoder with two hidden layers
// (Graham & Storkey 2017, section 7.4): p(y | x) = Bernoulli with logits
// W3 tanh(W2 tanh(W1 x + b1) + b2) + b3, and x ~ N(0, I).
data {
  int<lower=1> N;  // images
  int<lower=1> D;  // latent dimensions
  int<lower=1> H1;
  int<lower=1> H2;
  int<lower=1> P;  // pixels
  matrix[H1, D] W1;
  matrix[H2, H1] W2;
  matrix[P, H2] W3;
  vector[H1] b1;
  vector[H2] b2;
  vector[P] b3;
  array[N, P] int<lower=0, upper=1> y;
}
parameters {
  array[N] vector[D] x;
}
model {
  for (n in 1 : N) {
    vector[H2] h = tanh(W2 * tanh(W1 * x[n] + b1) + b2);
    x[n] ~ std_normal();
    y[n] ~ bernoulli_logit(W3 * h + b3);
  }
}
