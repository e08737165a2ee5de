// The same density as decoder.stan for `stanc --use-opencl`, which moves the last
// layer, a generalised linear model, to the device.
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
    y[n] ~ bernoulli_logit_glm(W3, b3, h);
  }
}
