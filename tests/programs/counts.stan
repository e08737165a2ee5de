// Counts: what only the data determine is summed once.
data {
  int<lower=1> N;
  matrix[N, 2] X;
  vector<lower=0>[N] effort;
  array[N] int<lower=0> y;
  array[N] int<lower=0> trials;
  array[N] int<lower=0> wins;
  array[N] int<lower=1, upper=2> group;
}
transformed data {
  vector[N] offset_ = log(effort);
  array[2] int doubled = {2 * y[1], 2 * y[2]};
}
parameters {
  vector[2] slope;
  vector[2] effect;
  real<lower=0> rate;
}
model {
  array[2] real rates = {rate, 2 * rate};
  slope ~ normal(0, 1);
  effect ~ normal(0, 0.5);
  rate ~ exponential(1);
  y ~ poisson_log(offset_ + X * slope);
  y ~ poisson(effort .* exp(effect[group]));
  wins ~ binomial_logit(
    trials, // in all
    effect[group] - 0.5
  );
  for (n in 1 : N) {
    real chance = inv_logit(X[n] * slope);
    wins[n] ~ binomial(trials[n], chance);
  }
  for (n in 1 : N) target += poisson_log_lpmf(y[n] | effect[group[n]]);
  doubled ~ poisson(square(slope));
  // Stan's own functions remain
  y ~ poisson(rate);
  y ~ poisson_log(slope' * X');
  doubled ~ poisson(rates);
  y[1 : 2] ~ poisson_log(slope);
  doubled ~ poisson(square(slope)) T[ , 99];
}
