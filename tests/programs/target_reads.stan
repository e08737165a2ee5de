// `target()` read wherever Stan allows it.
functions {
  real less_lp(real x) {
    target += -square(x);
    return 0.01 * x;
  }
  void twice_lp(real x) {
    real before = less_lp(x);
    target += 0.1 * before;
  }
}
data {
  int<lower=0> N;
  vector[N] y;
}
parameters {
  real<lower=0> a;
  real b;
}
transformed parameters {
  real log_jacobian = target();
}
model {
  a ~ normal(0, 2);
  twice_lp(b);
  print("target = ", target());
  b ~ normal(0.001 * target(), 1);
  target += less_lp(a) + log_jacobian;
  y ~ normal(b, a);
}
