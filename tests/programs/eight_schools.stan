// Eight schools, centred.
data {
  int<lower=0> J;
  array[J] real y; // estimated effects
  array[J] real<lower=0> sigma; // their standard errors
}
parameters {
  real mu;
  real<lower=0> tau;
  array[J] real<offset=mu, multiplier=tau> theta;
}
model {
  mu ~ normal(0, 5);
  tau ~ cauchy(0, 5) T[0, ]; // half-Cauchy
  theta ~ normal(mu, tau);
  y ~ normal(theta, sigma);
}
generated quantities {
  real shrinkage = square(tau) / (square(tau) + square(sigma[1]));
}
