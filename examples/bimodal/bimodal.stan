// Two modes twelve standard deviations apart: 0.6 N(-8, 1) + 0.4 N(8, 2)
// (Graham & Storkey 2017, section 7.1). Normalised, so that log Z = 0.
parameters {
  real x;
}
model {
  target += log_mix(0.6, normal_lpdf(x | -8, 1), normal_lpdf(x | 8, 2));
}
