// The same density as decoder.stan, images in parallel, and the last layer as a
// generalised linear model, whose gradient Stan knows in closed form and has an
// OpenCL kernel for.
functions {
  real images_lpmf(array[,] int y, int first, int last, array[] vector x,
                   matrix W1, matrix W2, matrix W3, vector b1, vector b2,
                   vector b3) {
    real log_p = 0;
    for (n in first : last) {
      vector[rows(b2)] h = tanh(W2 * tanh(W1 * x[n] + b1) + b2);
      log_p += bernoulli_logit_glm_lpmf(y[n - first + 1] | W3, b3, h);
    }
    return log_p;
  }
}
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
    x[n] ~ std_normal();
  }
  target += reduce_sum(images_lpmf, y, 1, x, W1, W2, W3, b1, b2, b3);
}
