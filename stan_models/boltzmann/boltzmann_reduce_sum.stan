// The same density as boltzmann.stan, its sum of log cosh(y), y = Q x + b, cut
// into slices of units that run in parallel. Each slice is a generalised linear
// model, whose gradient Stan knows in closed form and has an OpenCL kernel for:
// log cosh(y) = y - log 2 - bernoulli_logit_lpmf(1 | 2 y).
functions {
  real log_cosh_lpmf(array[] int ones, int first, int last,
                     array[] row_vector Q, vector b, vector x) {
    int n = last - first + 1;
    matrix[n, rows(x)] twice_Q;
    for (i in 1 : n) {
      twice_Q[i] = 2 * Q[first + i - 1];
    }
    return -bernoulli_logit_glm_lpmf(ones | twice_Q, 2 * b[first : last], x);
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
  array[B] row_vector[D] unit;
  row_vector[D] total = rep_row_vector(1, B) * Q;
  real constant = sum(b) - B * log2();
  for (i in 1 : B) {
    unit[i] = Q[i];
  }
}
parameters {
  vector[D] x;
}
model {
  target += -0.5 * dot_self(x) + total * x + constant;
  target += reduce_sum(log_cosh_lpmf, ones, 1, unit, b, x);
}
