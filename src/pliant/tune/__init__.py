"""What searches stand on: measuring of compiled programs in processes of their own."""
