// `target()` read wherever Stan allows it.
functions {
  real so_far_lp(real x) {
    target += -square(x);
    return 0.01 * target();
  }
  void twice_lp(real x) {
    real before = so_far_lp(x);
    target += 0.1 * before;
  }
  void print_lp() {
    print("target = ", target());
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
  print_lp();
  b ~ normal(0.001 * target(), 1);
  target += so_far_lp(a) + log_jacobian;
  y ~ normal(b, a);
}
