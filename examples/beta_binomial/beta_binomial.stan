// A rate near one according to its prior, near a fifth according to the data
// (Betancourt 2014, Adiabatic Monte Carlo, section III).
data {
  int<lower=1> n;
  int<lower=0, upper=n> k;
  real<lower=0, upper=1> power; // of the likelihood: 0 prior, 1 posterior
}
parameters {
  real<lower=0, upper=1> theta;
}
model {
  theta ~ beta(9, 0.75);
  target += power * binomial_lpmf(k | n, theta);
}
