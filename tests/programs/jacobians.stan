// Changes of variables written by hand.
data {
  int<lower=1> N;
  vector[N] y;
}
parameters {
  vector[3] raw;
  array[2] simplex[3] w;
  vector[2] free;
  real log_scale;
}
transformed parameters {
  vector[3] high = exp(raw);
  jacobian += raw; // all of them
  positive_ordered[3] cut;
  for (n in 1 : 3) cut[n] = sum(exp(head(raw, n)));
  real low;
  if (N > 1) {
    low = exp(raw[1] + raw[2]) - 4;
    jacobian += raw[1] + raw[2];
  } else low = 0;
  if (free[1] > 0) jacobian += -free;
  else jacobian += 0.5 * free;
  real<lower=0> sigma = exp(log_scale);
  jacobian += log_scale;
}
model {
  high ~ gamma(2, 1);
  for (k in 1 : 2) w[k] ~ dirichlet([1, 2, 3]');
  free ~ normal(low, 2);
  y ~ normal(w[1, 2] + free[1], sigma);
  sigma ~ exponential(1);
}
