functions {
  vector twice(vector x) {
    return 2 * x;
  }
}
data {
  int<lower=1> N;
  vector[N] y;
}
transformed data {
  array[2, 2] int table = {{1, 2}, {3, 4}};
}
parameters {
  real mu;
  vector[2] lambda;
}
transformed parameters {
  vector[2] log_lambda = -log1p_exp(-lambda); // {{ not a template }}
}
model {
  int half = N %/% 2;
  vector[N] log_lik;
  target += -0.5 * square(mu); // a scalar
  target += -square(lambda); // a container
  target += twice(-square(y - mu)); // stanct: likelihood
  profile("likelihood") {
    for (n in 1 : N) log_lik[n] = normal_lpdf(y[n] | mu, 1);
    target += sum(log_lik[1 : half]);
    target += log_lik[(half + 1) : N];
  }
  {
    array[2] real local = {mu, lambda[1]};
    target += -0.1 * square(local[2]);
    local ~ normal(0, 3);
  }
  while (half > 100) half -= 1;
  {1.5, -2.0} ~ normal(mu, table[1, 2]);
  if (mu > 100) target += negative_infinity(); else if (mu > 50) target += -1;
  print("target() is ", target(), " /* no comment */");
}
