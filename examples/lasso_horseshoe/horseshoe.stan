// Logistic regression with the regularised horseshoe (Piironen & Vehtari 2017).
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
  real<lower=0> slab_scale;
  real<lower=0> slab_df;
}
parameters {
  real alpha;
  vector[d] z;
  real<lower=0> tau; // global scale
  vector<lower=0>[d] lambda; // local scales
  real<lower=0> slab;
}
transformed parameters {
  vector[d] beta;
  {
    real c2 = square(slab_scale) * slab;
    vector[d] lambda2 = square(lambda);
    beta = z .* sqrt(c2 * lambda2 ./ (c2 + square(tau) * lambda2)) * tau;
  }
}
model {
  alpha ~ normal(0, scale_intercept);
  z ~ std_normal();
  tau ~ cauchy(0, scale_global) T[0, ];
  lambda ~ cauchy(0, 1);
  target += d * log2(); // half-Cauchy densities
  slab ~ inv_gamma(0.5 * slab_df, 0.5 * slab_df);
  y ~ bernoulli_logit_glm(x, alpha, beta);
}
generated quantities {
  vector[n_test] log_predictive;
  for (i in 1 : n_test) {
    log_predictive[i] = bernoulli_logit_lpmf(y_test[i] | alpha + x_test[i] * beta);
  }
}
