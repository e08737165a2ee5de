// Measurements with an error, some of them missing, some above the detection limit.
data {
  int<lower=0> N_seen, N_missing, N_above;
  array[N_seen] int<lower=1, upper=N_seen + N_missing> where_seen;
  array[N_missing] int<lower=1, upper=N_seen + N_missing> where_missing;
  array[N_seen] real y_seen;
  real limit;
  real<lower=0> error;
}
transformed data {
  int N = N_seen + N_missing;
}
parameters {
  array[N_missing] real y_missing;
  vector<lower=limit>[N_above] y_above;
  vector[N] truth;
  real mu, log_tau;
}
transformed parameters {
  array[N] real y;
  y[where_seen] = y_seen;
  y[where_missing] = y_missing;
  real tau = exp(log_tau);
}
model {
  target += normal_lpdf(mu | 0, 10) + std_normal_lpdf(log_tau);
  truth ~ normal(mu, tau);
  y ~ normal(truth, error);
  y_above ~ normal(mu, hypot(tau, error));
}
