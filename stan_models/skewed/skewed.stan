// Event rates of small counts: each posterior is a gamma. On the unconstrained
// scale, log(rate), it has an exponential left tail, the heavier the smaller
// the count.
data {
  int<lower=1> J;
  array[J] int<lower=0> events;
  vector<lower=0>[J] exposure;
  real<lower=0> shape;
  real<lower=0> inverse_scale;
}
parameters {
  vector<lower=0>[J] rate;
}
model {
  rate ~ gamma(shape, inverse_scale);
  events ~ poisson(exposure .* rate);
}
