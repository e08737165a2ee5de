// Varying intercepts for log radon in 919 Minnesota homes of 85 counties, with
// floor and county uranium as predictors, non-centred (Gelman & Hill 2006;
// priors of Graham & Storkey 2017, section 7.3).
data {
  int<lower=1> N; // homes
  int<lower=1> J; // counties
  array[N] int<lower=1, upper=J> county;
  vector[N] floor_measure; // 0 = basement, 1 = first floor
  vector[N] log_uranium; // of the home's county
  vector[N] log_radon;
}
parameters {
  real<lower=0> sigma_alpha;
  real mu_alpha;
  real<lower=0> sigma_beta;
  real mu_beta;
  real<lower=0> epsilon;
  vector[2] n_beta;
  vector[J] n_alpha;
}
transformed parameters {
  vector[J] alpha = mu_alpha + sigma_alpha * n_alpha;
  vector[2] beta = mu_beta + sigma_beta * n_beta;
}
model {
  sigma_alpha ~ cauchy(0, 2.5) T[0, ];
  sigma_beta ~ cauchy(0, 2.5) T[0, ];
  epsilon ~ cauchy(0, 2.5) T[0, ];
  mu_alpha ~ std_normal();
  mu_beta ~ std_normal();
  n_alpha ~ std_normal();
  n_beta ~ std_normal();
  log_radon ~ normal(alpha[county] + floor_measure * beta[1]
                     + log_uranium * beta[2], epsilon);
}
