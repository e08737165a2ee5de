// The same density as boltzmann.stan for `stanc --use-opencl`, which moves the
// generalised linear model to the device:
// sum log cosh(y) = sum(y) - B log 2 - bernoulli_logit_glm_lpmf(1 | 2 Q, 2 b, x).
// The ones are made where they are used: stanc 2.39 declares integers of
// transformed data as reals on the device, and the model then never loads.
data {
  int<lower=1> B;
  int<lower=1> D;
  matrix[B, D] Q;
  vector[B] b;
}
transformed data {
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
  target += -bernoulli_logit_glm_lpmf(ones_int_array(B) | twice_Q, twice_b, x);
}
