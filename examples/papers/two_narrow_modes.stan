// Two narrow modes of unequal width: 0.5 N(-1, 0.1) + 0.5 N(1, 0.02), variances
// in brackets (Nemeth et al. 2019, section 3). Normalised, so that log Z = 0.
parameters {
  real x;
}
model {
  target += log_mix(0.5, normal_lpdf(x | -1, sqrt(0.1)),
                    normal_lpdf(x | 1, sqrt(0.02)));
}
