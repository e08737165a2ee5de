// Logistic regression with the Bayesian lasso (Park & Casella 2008).
data {
  int<lower=1> n;
  int<lower=0> n_test;
  int<lower=1> d;
  matrix[n, d] x;
  array[n] int<lower=0, upper=1> y;
  matrix[n_test, d] x_test;
  array[n_test] int<lower=0, upper=1> y_test;
  real<lower=0> scale_intercept;
  real<lower=0> scale_global;
}
parameters {
  real alpha;
  real<lower=0> tau; // scale of all coefficients
  vector[d] beta;
}
model {
  alpha ~ normal(0, scale_intercept);
  tau ~ cauchy(0, scale_global) T[0, ];
  beta ~ double_exponential(0, tau);
  y ~ bernoulli_logit_glm(x, alpha, beta);
}
generated quantities {
  vector[n_test] log_predictive;
  for (i in 1 : n_test) {
    log_predictive[i] = bernoulli_logit_lpmf(y_test[i] | alpha + x_test[i] * beta);
  }
}
