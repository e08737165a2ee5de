real scale() {
  return 1.5;
}
