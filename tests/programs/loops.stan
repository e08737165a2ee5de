// Loops that add to the target: which densities leave them, and what stays.
functions {
  real own_lpdf(real y, real scale) {
    return -abs(y) / scale - log(2 * scale);
  }
}
data {
  int<lower=0> N;
  int<lower=0> M;
  int N_plain; // nothing says that this is no negative number
  int<lower=1> G;
  int<lower=0> nothing;
  array[N] real y;
  vector[N] x;
  array[N] int<lower=1, upper=G> group;
  array[N, M] int<lower=0> count;
  array[N] int<lower=1> trials;
}
parameters {
  vector[G] a;
  real b;
  real<lower=0> sigma;
  matrix[N, M] eta;
}
model {
  array[N] real mu;
  vector[N] later;
  real last = 0;
  sigma ~ lognormal(0, 1);
  // the whole of containers
  for (n in 1 : N) y[n] ~ normal(x[n], sigma);
  for (n in 1 : N) {
    y[n] ~ normal(a[group[n]], sigma);
    target += std_normal_lpdf(x[n]) + b;
  }
  // element by element, each before it is read
  for (n in 1 : N) {
    mu[n] = a[group[n]] + b * x[n];
    y[n] ~ student_t(4, mu[n], sigma);
  }
  // given a value after it is read
  for (n in 1 : N) {
    later[n] = b;
    y[n] ~ normal(later[n], 1);
    later[n] = 2 * b;
  }
  // an expression, behind a comment, in a part of the range
  for (n in 2 : (N - 1)) // all but two
    trials[n] ~ poisson(exp(b) + x[n] ^ 2 + y[n - 1] ^ 2);
  for (n in (nothing + 1) : N_plain) {
    target += normal_lccdf(y[n] | b * n, sigma);
  }
  // loops in one another
  for (n in 1 : N) {
    for (m in 1 : M) {
      count[n, m] ~ poisson_log(eta[n, m]);
      count[n, m] ~ binomial_logit(trials[n] + 9, eta[n, m] - b);
      eta[n, m] ~ normal(a[group[n]] * m, 1 + m);
    }
  }
  // a range that the outer loop sets
  for (n in 1 : N) {
    for (m in n : M) {
      eta[n, m] ~ logistic(b, 1);
    }
  }
  if (N > 2)
    for (n in 1 : N) b ~ normal(y[n], 3);
  // what stays: branches, a density of the user's, mixtures, a recurrence
  for (n in 1 : N) {
    if (y[n] > 0) y[n] ~ exponential(sigma);
    target += own_lpdf(y[n] | sigma);
    target += log_mix(0.3, normal_lpdf(y[n] | b, 1), normal_lpdf(y[n] | -b, 2));
    last = 0.5 * last + x[n];
    y[n] ~ normal(last * b, 1);
  }
  for (n in 1 : N) {
    if (n == 3) break;
    y[n] ~ normal(b, sigma);
  }
  for (value in y) value ~ normal(b, sigma);
  for (n in 1 : 2) b ~ normal(0, 2);
  for (n in 1 : nothing) y[n] ~ normal(a[n], sigma);
  while (last > 100) {
    last = 0;
    b ~ normal(0, 1);
  }
  for (g in 1 : G)
    a[g] ~ normal(0, 2) T[-5, 5];
}
