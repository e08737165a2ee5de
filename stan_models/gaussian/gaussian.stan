// Linear regression with known noise: posterior and evidence are Gaussian
// integrals. The columns of the design are correlated, and so are the slopes.
data {
  int<lower=1> N;
  int<lower=1> K;
  matrix[N, K] design;
  vector[N] y;
  real<lower=0> noise;
  real<lower=0> prior_scale;
}
parameters {
  vector[K] slope;
}
model {
  slope ~ normal(0, prior_scale);
  y ~ normal(design * slope, noise);
}
