data {
  int<lower=1> N;
}
parameters {
  tuple(real<lower=0>, vector[N]) pair;
  array[2] tuple(simplex[3], tuple(real, array[N] real<upper=1>)) nest;
  complex z;
  complex_vector[N] w;
  complex_matrix[2, N] q;
}
model {
  pair.1 ~ exponential(1);
  pair.2 ~ std_normal();
  nest[1].1 ~ dirichlet([1, 2, 3]');
  target += -abs(z) - nest[2].2.1 ^ 2;
}
