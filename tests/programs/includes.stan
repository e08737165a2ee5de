functions {
  #include "include/helpers.stan"
}
#include include/data.stan
parameters {
  vector<lower=0>[N] tau;
}
model {
  tau ~ lognormal(0, scale());
}
