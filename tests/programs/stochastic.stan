data {
  int<lower=2> N;
}
parameters {
  column_stochastic_matrix[3, N] from;
  row_stochastic_matrix[2, N] to;
  sum_to_zero_matrix[3, N + 1] field;
  array[2] row_stochastic_matrix[2, 2] pairs;
}
model {
  to_vector(from) ~ normal(0, 1);
  to_vector(to) ~ normal(0, 1);
  to_vector(field) ~ normal(0, 1);
  for (s in 1 : 2) to_vector(pairs[s]) ~ normal(0, 1);
}
