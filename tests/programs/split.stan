// Regression whose prior and likelihood are told apart by what is observed.
functions {
  real tail_lpdf(vector y, real df) {
    return student_t_lupdf(y | df, 0, 1);
  }
}
data {
  int<lower=1> N;
  vector[N] y;
  array[N] int<lower=1, upper=2> group;
  real<lower=0> scale; // of the prior
  int<lower=0, upper=1> robust;
}
transformed data {
  vector[N] centred = y - mean(y);
}
parameters {
  vector[2] alpha;
  real<lower=0> sigma;
  real<lower=0, upper=1> mix; // flat on its support
  real log_nu;
  simplex[3] share;
}
transformed parameters {
  vector[N] mu = alpha[group];
  real log_prior = normal_lpdf(log_nu | 0, scale);
  log_prior += log_nu;
}
model {
  alpha ~ normal(0, scale);
  if (robust) alpha ~ tail(4);
  sigma ~ normal(0, scale) T[0, ];
  target += log_prior;
  target += exponential_lpdf(sum(alpha .* alpha) | 1) // prior
            - 0.1 * dot_self(centred - mu) // likelihood
            + normal_lpdf(y | mu, sigma);
  for (n in 1 : N) {
    if (y[n] > 0) target += log(mix);
    else target += log1m(mix);
    target += log(share[group[n]]);
  }
  0 ~ normal(alpha[1] - alpha[2], 1); // a soft constraint
  alpha[group[1]] ~ normal(0, 9); // stanct: likelihood
}
