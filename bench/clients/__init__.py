"""Python clients beside each other, and the command line beside kcat, in processes of their own."""
