// A mixture of isolated bivariate normals (Kou, Zhou & Wong 2006), normalised.
data {
  int<lower=1> K;
  simplex[K] weight;
  array[K] vector[2] centre;
  vector<lower=0>[K] sigma;
}
transformed data {
  vector[K] centre_1;
  vector[K] centre_2;
  vector[K] half_precision = 0.5 * inv_square(sigma);
  vector[K] log_height = log(weight) - 2 * log(sigma) - log(2 * pi());
  for (k in 1 : K) {
    centre_1[k] = centre[k][1];
    centre_2[k] = centre[k][2];
  }
}
parameters {
  vector[2] x;
}
model {
  vector[K] square_distance = square(x[1] - centre_1) + square(x[2] - centre_2);
  target += log_sum_exp(log_height - half_precision .* square_distance);
}
