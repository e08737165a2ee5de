// shared by several programs
#include scale.stan
