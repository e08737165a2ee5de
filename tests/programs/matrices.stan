data {
  int<lower=1> K;
}
parameters {
  cholesky_factor_corr[K] L;
  cholesky_factor_cov[K] C;
  cholesky_factor_cov[K + 2, K] tall;
  corr_matrix[K] Omega;
  cov_matrix[K] Sigma;
  array[2] corr_matrix[2] pair;
}
model {
  L ~ lkj_corr_cholesky(2);
  to_vector(C) ~ normal(0.2, 1);
  to_vector(tall) ~ normal(-0.3, 1);
  Omega ~ lkj_corr(1.5);
  Sigma ~ wishart(K + 2.5, identity_matrix(K));
  target += -dot_self(to_vector(pair[1])) - pair[2, 1, 2];
}
