/* A program whose layout must survive.
   {% raw %} {{ and }} ]] # */ data { int N; array[N] real y; }
// between the blocks: data ~ parameters
parameters { real mu; // trailing; with ~ and target += 1;
  real<lower=0> // on two lines
    sigma; }
model {
  mu~normal(0,1); sigma   ~   exponential( 1 ) ;
  y /* the data */ ~ // are
    normal(mu, // mean
           sigma);
  if (N>3) mu~cauchy(0,1)T[,9]; else
    for (n in 1:N) if (y[n] > 0) y[n] ~ std_normal();
  mu ~ std_normal() T [ -5 , 5 ];
}
