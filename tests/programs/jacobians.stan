// Changes of variables written by hand, and by functions of the user.
functions {
  // x above a bound
  real above_jacobian(real x, real bound) {
    jacobian += x;
    return bound + exp(x);
  }
  vector all_above_jacobian(vector x, real bound) {
    vector[size(x)] y;
    for (n in 1 : size(x)) y[n] = above_jacobian(x[n], bound);
    return y;
  }
  void count_jacobian(vector x) {
    if (x[1] > 0) jacobian += -x;
    else jacobian += 0.5 * x;
  }
}
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
  vector[3] high = all_above_jacobian(raw, 0);
  sum_to_zero_vector[3] between = sum_to_zero_jacobian(free);
  positive_ordered[3] cut;
  for (n in 1 : 3) cut[n] = sum(exp(head(raw, n)));
  real low;
  if (N > 1) low = above_jacobian(raw[1] + raw[2], -4);
  else low = 0;
  count_jacobian(free); // has no value
  real<lower=0> sigma = exp(log_scale);
  jacobian += log_scale;
}
model {
  high ~ gamma(2, 1);
  for (k in 1 : 2) w[k] ~ dirichlet([1, 2, 3]');
  between ~ normal(low, 2);
  y ~ normal(w[1, 2] + between[1], sigma);
  sigma ~ exponential(1);
}
