// Three conjugate pairs whose priors are cut: below, above, and on both sides.
// Each posterior is its conjugate family cut at the same place.
data {
  int<lower=1> N;
  vector[N] height;
  array[N] int<lower=0> calls;
  int<lower=1> trials;
  int<lower=0, upper=trials> successes;
  real<lower=0> least_mean;
  real<lower=0> most_rate;
}
parameters {
  real<lower=least_mean> mean_height;
  real<lower=0, upper=most_rate> call_rate;
  real<lower=0.2, upper=0.6> success;
}
model {
  mean_height ~ normal(0, 1) T[least_mean, ];
  height ~ normal(mean_height, 2);
  call_rate ~ gamma(2, 1) T[, most_rate];
  calls ~ poisson(call_rate);
  success ~ uniform(0.2, 0.6);
  successes ~ binomial(trials, success);
}
