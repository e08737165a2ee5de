data {
  int n;
  int planets;
  vector[n] day;
  vector[n] velocity;
  vector[n] error;
}
parameters {
  vector<lower=log(2), upper=log(100)>[planets] lnP;
  vector[planets] a;
  vector[planets] b;
  real gamma;
  real<lower=0> jitter;
}
model {
  lnP ~ uniform(log(2), log(100));
  a ~ normal(0, 5);
  b ~ normal(0, 5);
  gamma ~ normal(0, 20);
  jitter ~ exponential(0.2);
  vector[n] mu = rep_vector(gamma, n);
  for (p in 1:planets) {
    vector[n] angle = 2 * pi() * day / exp(lnP[p]);
    mu += a[p] * sin(angle) + b[p] * cos(angle);
  }
  velocity ~ normal(mu, sqrt(square(error) + square(jitter)));
}
generated quantities {
  vector[planets] P = exp(lnP);
}
