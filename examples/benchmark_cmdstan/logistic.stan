// Logistic regression; `stanc --use-opencl` moves the generalised linear model to the device.
data {
  int<lower=0> N;
  int<lower=1> K;
  matrix[N, K] X;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  vector[K] x;
}
model {
  x ~ std_normal();
  y ~ bernoulli_logit_glm(X, 0, x);
}
