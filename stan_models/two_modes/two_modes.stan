// Two Gaussian modes of unequal weight and width in the plane, far apart. The
// density is scaled by exp(2.5), which is therefore its integral.
transformed data {
  vector[2] narrow_mean = [-4, -2]';
  vector[2] wide_mean = [4, 3]';
  matrix[2, 2] narrow = [[0.36, 0.18], [0.18, 0.25]];
  matrix[2, 2] wide = [[2.25, -0.9], [-0.9, 1.44]];
}
parameters {
  vector[2] x;
}
model {
  target += 2.5;
  target += log_mix(0.7, multi_normal_lpdf(x | narrow_mean, narrow),
                    multi_normal_lpdf(x | wide_mean, wide));
}
