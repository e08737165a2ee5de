// Logistic regression on standardised predictors.
data {
  int<lower=1> N;
  int<lower=1> K;
  matrix[N, K] X;
  array[N] int<lower=0, upper=1> y;
}
transformed data {
  matrix[N, K] Z;
  vector[K] scale_of;
  for (k in 1 : K) {
    scale_of[k] = sd(X[ : , k]);
    Z[ : , k] = (X[ : , k] - mean(X[ : , k])) / scale_of[k];
  }
}
parameters {
  real alpha;
  vector[K] theta;
  real<lower=0> scale;
}
transformed parameters {
  vector[K] beta = theta ./ scale_of;
}
model {
  scale ~ student_t(4, 0, 1) T[0, ];
  alpha ~ normal(0, 5);
  theta ~ normal(0, scale);
  y ~ bernoulli_logit_glm(Z, alpha, theta);
}
generated quantities {
  array[N] int y_new = bernoulli_logit_rng(alpha + Z * theta);
  real accuracy = 0;
  for (n in 1 : N) accuracy += (y_new[n] == y[n]) * 1.0 / N;
}
