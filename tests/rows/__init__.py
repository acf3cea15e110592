"""Requirements proven as a whole, clause by clause, where the tests of a module prove parts of them."""
