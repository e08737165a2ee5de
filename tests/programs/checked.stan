// Transformed parameters that Stan checks against their constraints.
data {
  int<lower=1> J;
  real<lower=0> top;
}
parameters {
  vector[J] a;
}
transformed parameters {
  // the scales
  vector<lower=0>[J] sigma = exp(a);
  array[2] ordered[J] cut;
  for (k in 1 : 2) cut[k] = cumulative_sum(sigma);
  array[2] vector<upper=top>[J] below = rep_array(top - sigma, 2);
  real<lower=0, upper=top + J> s = sigma[1];
  tuple(real<upper=0>, simplex[J]) pair = (-s, softmax(a));
}
model {
  sigma ~ exponential(1);
}
