// Three isolated modes on the line.
parameters {
  real x;
}
model {
  target += log_sum_exp({log(0.25) + normal_lpdf(x | -5, 0.7),
                         log(0.45) + normal_lpdf(x | 0, 0.5),
                         log(0.30) + normal_lpdf(x | 5.5, 0.9)});
}
