// The copies of the code of Nemeth et al. (2019), section 4.3, for horseshoe.stan.
// N copies of the intercept and of z share the scales. Copy i follows the prior times the power
// power[i] of the likelihood, and counts by its share of sum(likelihood ^ (1 - power)).
// Draws of the scales are not those of horseshoe.stan. Each of the N - 1 other copies adds the factor
// E[likelihood ^ power | scales], where z and alpha follow their prior.
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
  int<lower=2> N;
  real<lower=0, upper=1> fixed_power; // 0: estimated
}
transformed data {
  int free = fixed_power == 0 ? N : 0;
}
parameters {
  vector[N] alpha;
  matrix[d, N] z;
  real<lower=0> tau; // global scale
  vector<lower=0>[d] lambda; // local scales
  real<lower=0> slab;
  vector<lower=0, upper=1>[free] estimated_power;
}
transformed parameters {
  matrix[d, N] beta;
  vector[N] level; // log likelihoods
  vector[N] power = free > 0 ? estimated_power : rep_vector(fixed_power, N);
  {
    real c2 = square(slab_scale) * slab;
    vector[d] lambda2 = square(lambda);
    beta = diag_pre_multiply(sqrt(c2 * lambda2 ./ (c2 + square(tau) * lambda2)) * tau, z);
  }
  for (i in 1 : N) {
    level[i] = bernoulli_logit_glm_lpmf(y | x, alpha[i], beta[ : , i]);
  }
}
model {
  alpha ~ normal(0, scale_intercept);
  to_vector(z) ~ std_normal();
  tau ~ cauchy(0, scale_global) T[0, ];
  lambda ~ cauchy(0, 1);
  target += d * log2(); // half-Cauchy densities
  slab ~ inv_gamma(0.5 * slab_df, 0.5 * slab_df);
  target += log_sum_exp((1 - power) .* level) + dot_product(power, level);
}
generated quantities {
  vector[N] weight = softmax((1 - power) .* level);
  vector[n_test] log_predictive; // its exponential is the mean over the copies, by weight
  for (i in 1 : n_test) {
    vector[N] each;
    for (k in 1 : N) {
      each[k] = bernoulli_logit_lpmf(y_test[i] | alpha[k] + x_test[i] * beta[ : , k]);
    }
    log_predictive[i] = log_sum_exp(log(weight) + each);
  }
}
