data {
  int<lower=0> N;
}
