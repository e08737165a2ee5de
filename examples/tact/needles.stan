// Three narrow, tilted modes in the plane.
transformed data {
  array[3] vector[2] centre = {[-4, 3]', [4, 3.5]', [0.5, -4]'};
  array[3] real angle = {0.8, -0.6, 0.1};
}
parameters {
  vector[2] x;
}
model {
  vector[3] log_density = log([0.3, 0.25, 0.45]');
  for (k in 1 : 3) {
    vector[2] d = x - centre[k];
    log_density[k] += normal_lpdf(cos(angle[k]) * d[1] + sin(angle[k]) * d[2] | 0, 1.4);
    log_density[k] += normal_lpdf(cos(angle[k]) * d[2] - sin(angle[k]) * d[1] | 0, 0.4);
  }
  target += log_sum_exp(log_density);
}
