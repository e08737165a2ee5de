// The same density as boltzmann.stan, its sum of log cosh(y), y = Q x + b, cut
// into slices of units that run in parallel. Each slice is a generalised linear
// model, whose gradient Stan knows in closed form and has an OpenCL kernel for:
// log cosh(y) = y - log 2 - bernoulli_logit_lpmf(1 | 2 y).
functions {
  real log_cosh_lpmf(array[] int ones, int first, int last, matrix twice_Q,
                     vector twice_b, vector x) {
    return -bernoulli_logit_glm_lpmf(ones | twice_Q[first : last],
                                     twice_b[first : last], x);
  }
}
data {
  int<lower=1> B;
  int<lower=1> D;
  matrix[B, D] Q;
  vector[B] b;
}
transformed data {
  array[B] int ones = ones_int_array(B);
  // Eight slices or so, each of which costs as much as some fifty units beside its product
  // with Q. With 1 slices are so fine that gradients take more than twice as long.
  int grainsize = max(100, B %/% 8);
  matrix[B, D] twice_Q = 2 * Q;
  vector[B] twice_b = 2 * b;
  row_vector[D] total = rep_row_vector(1, B) * Q;
  real constant = sum(b) - B * log2();
}
parameters {
  vector[D] x;
}
model {
  target += -0.5 * dot_self(x) + total * x + constant;
  target += reduce_sum(log_cosh_lpmf, ones, grainsize, twice_Q, twice_b, x);
}
