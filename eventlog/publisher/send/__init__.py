"""From a recorded delivery to its marks: send, judge the answers, park what is sent again later."""
