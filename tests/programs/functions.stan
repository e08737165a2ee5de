functions {
  real partial_sum_lpdf(array[] real y, int start, int end, real mu) {
    return normal_lupdf(y | mu, 1);
  }
  real tail_lpdf(real y, real df) {
    return student_t_lupdf(y | df, 0, 1);
  }
  real count_lpmf(int n, real rate) {
    return poisson_lupmf(n | rate);
  }
  void prior_lp(real mu) {
    mu ~ normal(0, 1);
    target += -square(mu); // not a density
  }
  real scaled_lp(real x, real s) {
    if (s > 0) x ~ normal(0, s);
    return s * x;
  }
}
data {
  int<lower=1> N;
  array[N] real y;
  int<lower=0> k;
}
parameters {
  real mu;
  real<lower=0> rate;
}
transformed parameters {
  real shift = scaled_lp(mu, 2);
}
model {
  prior_lp(mu);
  rate ~ tail(3);
  k ~ count(rate);
  target += reduce_sum(partial_sum_lupdf, y, 1, mu + shift);
}
