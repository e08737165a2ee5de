functions {
  real bump_lpdf(real y, real scale) {
    return -square(y / scale);
  }
  real bump_lcdf(real y, real scale) {
    return std_normal_lcdf(y / scale);
  }
  real bump_lccdf(real y, real scale) {
    return std_normal_lccdf(y / scale);
  }
}
data {
  int<lower=1> N;
  vector<lower=0, upper=4>[N] y;
  array[N] int<lower=1, upper=6> n;
  vector[N] x;
}
parameters {
  real mu;
  real<lower=0> sigma;
  real<lower=0.5, upper=2.5> theta;
  vector<lower=0>[N] rate;
}
model {
  mu ~ normal(0, 1);
  sigma ~ normal(0, 2) T[0, ];
  theta ~ bump(sigma) T[0.5, 2.5];
  y ~ normal(mu, sigma) T[0, 4];
  y ~ normal(mu + x, sigma) T[0, 4]; // a loop over the normalisers
  y ~ normal(mu + x, sigma) T[ , 4];
  n ~ poisson(exp(mu)) T[1, ];
  n ~ poisson(rate) T[1, 6];
  if (N > 1) n[2] ~ binomial(7, inv_logit(mu)) T[1, ];
  else n[1] ~ binomial(7, inv_logit(mu)) T[ , 6];
  for (i in 1 : N)
    rate[i] ~ gamma(2, sigma) T[0, positive_infinity()];
  rate ~ exponential(1);
}
