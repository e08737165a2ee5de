// Two rings, apart from each other, unequal in radius and mass.
parameters {
  vector[2] x;
}
transformed parameters {
  real left = sqrt(dot_self(x - [-3.6, 0]'));
  real right = sqrt(dot_self(x - [3.6, 1]'));
}
model {
  target += log_sum_exp(log(0.4) + normal_lpdf(left | 2, 0.4),
                        log(0.6) + normal_lpdf(right | 1.2, 0.4));
}
