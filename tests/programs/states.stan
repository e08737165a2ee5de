// A hidden Markov model, its states summed out by a function of the user's.
functions {
  // the scalar case, and the one that it is for
  real smooth(real x) {
    return log1p_exp(x);
  }
  vector smooth(vector x) {
    if (size(x) == 0) return x;
    return log1p_exp(x);
  }
  real forward_lpdf(vector y, vector log_start, array[] vector log_move,
                    vector mu, real sigma) {
    int K = size(mu);
    if (size(y) == 0) return 0;
    vector[K] log_alpha = log_start;
    for (k in 1 : K) log_alpha[k] += normal_lupdf(y[1] | mu[k], sigma);
    for (t in 2 : size(y)) {
      vector[K] next;
      for (k in 1 : K) {
        next[k] = log_sum_exp(log_alpha + log_move[k])
                  + normal_lupdf(y[t] | mu[k], sigma);
      }
      log_alpha = next;
    }
    return log_sum_exp(log_alpha);
  }
}
data {
  int<lower=0> T;
  vector[T] y;
}
parameters {
  array[2] simplex[2] move; // move[k]: where to from state k
  ordered[2] mu;
  real raw;
}
transformed parameters {
  real<lower=0> sigma = smooth(raw);
  array[2] vector[2] log_into;
  for (k in 1 : 2) log_into[k] = log([move[1, k], move[2, k]]');
}
model {
  for (k in 1 : 2) move[k] ~ dirichlet([2, 2]');
  mu ~ normal(0, 2);
  raw ~ std_normal();
  y ~ forward([log(0.5), log(0.5)]', log_into, smooth(mu), sigma);
}
